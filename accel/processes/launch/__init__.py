"""Starting processes under the switch: how they are told of it."""
