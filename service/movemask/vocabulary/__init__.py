"""The moves that networks have logits for, and how each vocabulary writes them."""
