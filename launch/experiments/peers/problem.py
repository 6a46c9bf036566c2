"""Three silos of one linear weight, small enough for a closed form; read by parent and drivers.

Silo i has `SIZES[i]` rows that are all (X[i], Y[i]), so its batches are alike in whatever order. A
model predicts w x, or with two weights h b x (a base b and a last layer h); the loss is the mean of
(prediction - y)^2. Plain Python, as it is imported by every peer's interpreter.
"""

X, Y = (1.0, 0.5, 2.0), (1.0, -1.0, 3.0)
SIZES, BATCH = (2, 5, 11), 3
STEPS = (1, 2, 4)  # Batches an epoch; none has one row, which some libraries drop.
ROUNDS, RATE = 3, 0.05
W0 = 0.5
BASE0, LAST0 = 1.0, 0.5
MU = LAMBDA = 1.0  # FedProx's and Ditto's pull.
MOMENTUM = 0.9
SERVER_RATE, BETA_1, BETA_2, TAU = 0.1, 0.9, 0.99, 0.02
ALPHA = 0.25  # APFL's own share, FedDyn's strength.
ABSENT = 2  # The silo that is away in round two.
PFEDME_STEPS = 3
CENTRES = (W0, -1.5)  # IFCA's models before the first round.
LAST_OF_ONE = (4, 4, 4)  # Sizes whose second batch has one row.
# Squared errors of an evaluation's client, in batches of three.
ERRORS = (1.0, 1.0, 1.0, 4.0, 4.0)
# Two clients of an evaluation: right answers of examples.
HITS, COUNTS = (1, 6), (4, 8)
EXAMPLES = tuple(n / sum(SIZES) for n in SIZES)
UNIFORM = (1 / 3, 1 / 3, 1 / 3)
BY_STEPS = tuple(k / sum(STEPS) for k in STEPS)


def rows(silo):
    """Returns a silo's (x, y), lists of numbers."""
    return [X[silo]] * SIZES[silo], [Y[silo]] * SIZES[silo]
