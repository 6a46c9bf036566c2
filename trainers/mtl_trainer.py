"""Multi-task learning over silos: every silo trains a model of its own and keeps it.

Trains for --total_rounds, evaluates the global and the personal model of every silo, and leaves the
personal models in personal_models.npz. --algorithm is one of

{}

    mtl_trainer --dataset_name=school --use_synthetic_data --algorithm=ditto --experiment_name=ditto
"""

from trainers import algorithm_flags, program

run = program.command(__name__, "mtl_trainer")
__doc__ = __doc__.format(algorithm_flags.listing("mtl_trainer"))

if __name__ == "__main__":
    run()
