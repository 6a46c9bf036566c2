"""FedEval's scorecard: from runs to its rows."""
