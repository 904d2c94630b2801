"""Notice sources and what is known of deadlines."""
