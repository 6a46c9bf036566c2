"""Evaluation of generative models over clients, each with data of its own (Wang et al. 2023).

"On the Evaluation of Generative Models in Distributed Learning Tasks": clients i hold n_i of the n
real examples, a share lambda_i = n_i / n, and a score D of a generated set G is one of

    D-all = D(all clients' examples together, G)               (equation 3)
    D-avg = sum over i of lambda_i * D(client i's examples, G)   (equation 2)

which can rank generated sets differently. Examples are rows of features [num_examples,
num_features]; the paper takes them from InceptionV3 (`datasets.models.inception_features`). All
sums are float64 and run over blocks of rows: memory grows with the features given, never with the
square of their number.
"""
