"""A discrete-event world that drives the production engine, so that a policy is judged before it runs.

Rooms: `scenario` (what a world is made of), `world` (events), `result` (what a run gives), `optimum` (the clairvoyant
bound), `compare`, `tune`, `report`. Nothing here acts on anything real.
"""
