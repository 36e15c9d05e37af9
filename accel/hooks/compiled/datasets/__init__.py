"""What is known of torchvision's datasets: how a batch's images, and their targets, are made."""
