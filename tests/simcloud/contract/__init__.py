"""What SimCloud and moto answer alike: each keeps the other honest."""
