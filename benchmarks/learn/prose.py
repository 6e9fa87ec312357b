"""The prose of docs/results.md, between its tables."""

HEAD = """\
# Results

Written by `make bench-learn` from the files under [benchmarks/results/learn](../benchmarks/results/learn), one for
each row and seed; do not edit. How a run is judged: [training](guides/training.md).

- A run ends when the mean of a greedy evaluation reaches the target and that of a second one, on other episodes, does
  as well ("seeds that reach it"), or at its last step. {failed}
- **Score**: the mean return of the **last** weights on 100 more episodes, which decided nothing: neither when a run
  ended nor which settings it has. Rows marked * have runs from before there were such episodes; the
  score of these is that of the second evaluation (20 episodes; 100 of Pendulum), so that a run that reached the
  target cannot be below it.
- **Seeds**: 100 to 104 chose no setting; that a result with them was too low was a reason to look for others.
  Presets were chosen with seeds below 100, often with 0 to 4, so the rows that still have those seeds flatter
  ([where presets come from](#where-presets-and-targets-come-from)).
- Reached: the interquartile mean over five seeds is at the target, and at least four seeds reach it; BipedalWalker has
  three seeds, all of which must, and their plain mean. Brackets are 95% bootstrap intervals of the interquartile mean
  (Agarwal et al. 2021): with five seeds they are too narrow, and leave out that 100 episodes are a sample. Of fewer
  seeds the plain mean is given, without an interval.
- A row with "no stop" is trained to its last step (`--until-max-steps`), and a seed of it reaches the target if its
  score does.
- Steps: the median over all seeds; a seed that does not reach the target counts as later than all others. Roles apart
  may overshoot the limit by the steps on their way when it is reached.
- Processor time is of the whole process, evaluations included, with one thread, on a machine with other work;
  that of runs that were interrupted is not known ("-").
- Links in the tables lead to the files of a row. The name of their folder is what `--rows` takes: with a checkout,
  `python -m benchmarks.learn --rows cartpole-dqn --seeds 200` trains it with another seed. A seed that has a file is
  left out: move the file away to train that seed again.
- The command of a run, its commit and its machine are in its file (before 2026-11-28 without the command, which is
  `python -m benchmarks.learn --rows ROW --seeds SEED`; some of those commits are no longer in the history). Runs in
  one process can be repeated exactly on the same kind of processor; another kind rounds otherwise, and takes another
  course.
"""
ORIGINS = """\

## Where presets and targets come from

The targets of CartPole, LunarLander, MountainCarContinuous, BipedalWalker and MountainCar are Gymnasium's thresholds
or next to them; those of Pendulum (-170), Acrobot (-90) and Pendulum without velocities (-220, next to the -218 of
Stable-Baselines3's zoo) are ours. Limits of steps differ by agent. Screening episodes of Pendulum begin nearer to
upright than the others (1.23 against 1.58 rad on average), so its curves are higher than its scores.

How settings were chosen, as far as it was written down: Ape-X DQN on CartPole by sweeps over seeds 0 to 15
([cartpole-dqn](measurements/cartpole-dqn.md)), Gorila and IMPALA by tries on seeds 0 to 9
([cartpole-gorila-impala](measurements/cartpole-gorila-impala.md)), D4PG in five tries with seed 0, PPO on Pendulum
without velocities in three rounds (seeds 0 to 4 reached the target 1, 2 and then 5 times of 5, the last after
`noise_theta` was chosen with seeds 10 to 14), Ape-X DQN on LunarLander in 24 runs with seeds 10 to 12, after 3 of
seeds 0 to 4 had 250 confirmed with earlier settings, and seeds 100 to 104 had 239.6 with others
([0166](decisions/0166-munchausen.md)). Earlier results of a row are in the history of its files.
"""
APART_HEAD = """\

## Roles apart

The presets as they are, but with replay shards, learners, evaluator and actors in processes of their own, or on Ray:
learners draw ahead, weights are older, and no two runs are the same. Judged as above.
"""
DEFAULTS_HEAD = """\

## Tasks without a preset

Each agent with the settings that it takes for an environment without a preset: its defaults for the kind of
environment where it has them, otherwise those of its nearest preset ([0137](decisions/0137-defaults-that-travel.md)).
Only evaluations are rarer. Up to {seeds} seeds, the first ones from 0 on or from 100 on: defaults were chosen while
the former were looked at. A cell has the mean score, the seeds that reach the task's threshold in the steps of the
column's head, and the median of the steps of all. "Preset": the agent has one for this task; see the first table.
"""
ABLATION_HEAD = """\

## Ablations of Ape-X DQN

CartPole-v1, its preset but for what the row names, {updates:,} updates each and no stop at the target. The learner
does the same work in every row; with twice the actors it sees twice the environment steps. `{baseline}` is the preset
itself, with the actors' own priorities, n = 3, float32 and no Munchausen term: what the rows below are compared with.
Its rate, target and ladder were chosen so: a row of another kind has settings that were chosen for others, and
shows how much the preset needs the part, not what the part is worth by itself. "Mean of the curve" is the greedy
return at 20 points, every 250 updates, averaged: an agent that learns sooner, and keeps it, has more. Rows whose
intervals overlap do not differ by what five seeds can show.
"""
PARTS_HEAD = """\

## Parts of Rainbow

MinAtar/Breakout-v0 with its preset, which has a categorical head, noisy layers, two streams, priorities, three steps
and double Q-learning, but for what the row names; `munchausen` has the quantile head and no double Q-learning, as
`quantile-no-double` has without it. {steps:,} environment steps and no stop at the target, up to {seeds} seeds. "Mean
of the curve" is the greedy return at ten points, every 25,000 steps, averaged. A run that was interrupted is a line of
its own, with as much of its curve as there is.
"""
CONTROL_HEAD = """\

## Walkers of MuJoCo

Curves of equal length, up to {seeds} seeds, without a stop at a target: presets for HalfCheetah-v5 (SAC, TD3) and
defaults for continuous actions (D4PG, PPO), next to Stable-Baselines3's SAC with its zoo's settings, which is
evaluated on the same seeds. "Mean of the curve" is the greedy return of ten episodes averaged over points every
10,000 steps (PPO: 20,000); "last weights" that of 100 other episodes. Of Stable-Baselines3 processor time is without
the start of its process. A run that was interrupted is a line of its own, with as much of its curve as there is.
"""
