"""SimCloud, a behavioural fake of EC2, Auto Scaling, EKS, SQS and EventBridge-to-SQS: see `tests.simcloud.sim`."""
