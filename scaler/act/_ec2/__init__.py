"""What pools on EC2 Auto Scaling groups are made of; not for use outside `scaler.act`."""
