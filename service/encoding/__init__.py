"""Chess: positions, planes, vocabularies and legal slots. python-chess and numpy, nothing else."""
