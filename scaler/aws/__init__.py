"""AWS as a transport: boto3's clients in a bounded thread pool, errors told apart. Knows no fleet."""
