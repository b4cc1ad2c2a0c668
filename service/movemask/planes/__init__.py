"""The inputs of networks: plane encoders and variations of them."""
