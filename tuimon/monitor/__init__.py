"""The Monitor: polls the sources of a run on threads of their own and folds their records into one Session."""
