"""What `scaler.interruptions.sqs` is made of: the wire, the notices that stand, and what becomes of each message."""
