"""The files by which capacity on this machine is shared between controller, workers and whoever plays the cloud.

In the state folder: `instances/<instance_id>.json` (one `InstanceRecord`), `notices/<instance_id>.json` (a notice
file, see `scaler.model.notice_file`), `capacity.json` (offering id -> instances it can hold; absent: no bound),
`interruptions.jsonl` (what the cloud did, one JSON object a line), `counters/<instance_id>` (8 bytes, little endian:
tokens its worker has generated, kept by a shared memory map so that it survives kill -9), `logs/<instance_id>.log`.
Every JSON file is replaced atomically. Processes outlive the controller: a new one adopts what it finds.
"""
