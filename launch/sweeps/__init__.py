"""What `motley_sweep` is made of.

| module | what |
|---|---|
| `grids` | reads a grid's YAML, and checks it and its flags |
| `data_check` | asks a trainer whether it can load the data |
| `plans` | points, runs, and the tasks they are grouped into; argument lists |
| `train_group` | the process that trains a group of runs in one compiled call |
| `processes` | the scheduler of one machine: starts tasks' processes, keeps what came of them |
| `slurm` | the scheduler of a cluster |
| `results` | `sweep.csv`, `best.csv`, `clients.csv`, `tasks.csv` |
"""
