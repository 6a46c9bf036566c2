"""What tasks of one kind share: classes, next words, silos, generators."""
