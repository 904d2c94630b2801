"""The ledger: work units, leases, progress, samples, batches. Nothing generated is lost, nothing is trained twice.

`contract` says what every engine promises and `open_ledger` picks one by its URL. A new engine is one file here and
one line in `registry`.
"""
