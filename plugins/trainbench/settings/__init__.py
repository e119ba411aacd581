"""What an installation decides once, by its environment: launcher, cluster, image, store, channels."""
