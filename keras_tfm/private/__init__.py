"""What this package uses of others without their promise to keep it: one file for each of them.

A file has functions in place of private attributes, the table ATTRIBUTES of all that are used, and the table
READ of methods that ours replace or follow, with a digest of their syntax trees. `make private`, to be run
when a version in constraints.txt moves, says which names are gone and which methods are no longer those that
were read.
"""
