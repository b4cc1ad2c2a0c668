"""Which move each logit is for, how vocabularies write castling and promotions, and the planes that networks take."""
