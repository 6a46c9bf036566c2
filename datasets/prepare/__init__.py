"""Commands that turn raw downloads into the forms that data sets are read in."""
