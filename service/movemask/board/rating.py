"""The range of accepted ratings. Needs no numpy, so that the command line can check its arguments at once."""

#: Highest rating, in Elo points; the lowest is 0.
MAX_RATING = 5000
