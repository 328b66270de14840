"""Private names of other libraries that this package uses, one file per library.

Each file has functions in place of private attributes, a table ATTRIBUTES of all private attributes that are
used, and a table READ of methods that ours replace or follow, with a digest of each one's syntax tree. Run
`make private` when a version in constraints.txt changes: it says which names are gone and which methods have
changed.
"""
