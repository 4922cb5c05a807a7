"""Click models: dense features and embeddings in, one logit per row out."""
