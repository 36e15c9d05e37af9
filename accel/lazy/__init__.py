"""Images, tensors and batches whose pixels are not computed yet."""
