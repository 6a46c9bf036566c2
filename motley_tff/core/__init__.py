"""What all tasks, algorithms and backends share."""
