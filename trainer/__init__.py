"""The reference GRPO trainer: batches from the ledger, a small MoE in plain torch, published weights."""
