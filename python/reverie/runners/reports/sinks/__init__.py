"""Places that the scalars of a run go to: TensorBoard's files, Weights & Biases, MLflow."""
