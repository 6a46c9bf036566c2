"""What `motley_compare` is made of.

| module | what |
|---|---|
| `methods` | the registry: what is compared, with which trainer, and which rates are tried |
| `budget` | rounds and grids that fit into a time, by the first timings |
| `collecting` | each method's chosen runs, and their test clients' values |
| `from_python` | `motley.compare`: the same on a task in memory |
| `tables` | `compare.csv`, `comparisons.csv`, `costs.csv`, the closing table and its sentence |

The runs are sweeps' (`launch.sweeps`), one a method; the statistics are
`motley_tff.metrics.paired_tests`.
"""
