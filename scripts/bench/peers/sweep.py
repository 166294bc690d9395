"""What Optuna's TPE and the package cmaes reach. usage: sweep.py FUNCTION SAMPLER TRIALS SEEDS

Prints, for each seed, how far the best of its trials is from the best there is. The functions and their ranges are
those of scripts/bench/sweep.lua.
"""
import math
import sys

import numpy

name, sampler, trials, seeds = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])

A = numpy.array([[10, 3, 17, 3.5, 1.7, 8], [0.05, 10, 17, 0.1, 8, 14], [3, 3.5, 1.7, 10, 17, 8],
                 [17, 8, 0.05, 10, 0.1, 14]])
P = 1e-4 * numpy.array([[1312, 1696, 5569, 124, 8283, 5886], [2329, 4135, 8307, 3736, 1004, 9991],
                        [2348, 1451, 3522, 2883, 3047, 6650], [4047, 8828, 8732, 5743, 1091, 381]])


def branin(x):
    a = x[1] - 5.1 / (4 * math.pi**2) * x[0] ** 2 + 5 / math.pi * x[0] - 6
    return a * a + 10 * (1 - 1 / (8 * math.pi)) * math.cos(x[0]) + 10 - 0.39788735772973816


def hartmann(x):
    return 3.322368011391339 - float(numpy.array([1, 1.2, 3, 3.2]) @ numpy.exp(-(A * (x - P) ** 2).sum(1)))


def rosenbrock(x):
    return sum(100 * (x[i + 1] - x[i] ** 2) ** 2 + (1 - x[i]) ** 2 for i in range(9))


FUNCTIONS = {"Branin": (branin, [(-5, 10), (0, 15)]), "Hartmann-6": (hartmann, [(0, 1)] * 6),
             "Rosenbrock-10": (rosenbrock, [(-5, 5)] * 10)}
function, ranges = FUNCTIONS[name]


def by_optuna(seed):
    import optuna
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    study = optuna.create_study(sampler=optuna.samplers.TPESampler(seed=seed))
    study.optimize(lambda trial: function(numpy.array([trial.suggest_float(f"x{i}", *pair)
                                                       for i, pair in enumerate(ranges)])), n_trials=trials)
    return study.best_value


def by_cmaes(seed):
    """As Optuna's CmaEsSampler begins: in the middle, a sixth of the range wide."""
    import cmaes
    low, high = numpy.array(ranges, dtype=float).T
    strategy, least, told = None, math.inf, []
    for _ in range(trials):
        if strategy is None or strategy.should_stop():
            strategy = cmaes.CMA(mean=numpy.full(len(low), 0.5), sigma=1 / 6, seed=seed,
                                 bounds=numpy.array([[0.0, 1.0]] * len(low)))
        x = strategy.ask()
        told.append((x, function(low + x * (high - low))))
        least = min(least, told[-1][1])
        if len(told) == strategy.population_size:
            strategy.tell(told)
            told = []
    return least


for seed in range(1, seeds + 1):
    print((by_optuna if sampler == "tpe" else by_cmaes)(seed), flush=True)
