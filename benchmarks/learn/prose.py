"""The prose of docs/results.md, between its tables."""

HEAD = """\
# Results

Written by `make bench-learn` from the files under [benchmarks/results/learn](../benchmarks/results/learn), one for
each row and seed; do not edit. How a run is judged: [training](guides/training.md).

- A run ends when a greedy evaluation and a second one on other episodes both reach the target ("seeds confirmed"), or
  at its last step. {failed}
- **Score**: the mean return of the **last** weights on 100 further episodes, which influenced neither when the run
  ended nor which settings were chosen. Rows marked * have runs from before there were such episodes. Their score is
  that of the second evaluation (20 episodes; 100 of Pendulum), so a run that reached the target cannot be below it.
- **Seeds**: seeds 100 to 104 were not used to choose settings. When a result with them was too low, however, other
  settings were tried. Presets were chosen with seeds below 100, often with 0 to 4, so the rows that still have those
  seeds look better than they are ([origin of presets](#origin-of-presets-and-targets)).
- **Reached**: the interquartile mean of the scores of five seeds is at the target, and at least four seeds are
  confirmed. BipedalWalker has three seeds: all must be confirmed, and the plain mean counts. Brackets are 95% bootstrap
  intervals of the interquartile mean (Agarwal et al. 2021). With five seeds they are too narrow, and they ignore the
  error of a mean of 100 episodes. Fewer seeds have the plain mean, without an interval.
- **Target, by**: the return to reach, and the largest number of environment steps.
- A row with "no stop" is trained to its last step (`--until-max-steps`). Its seeds count as confirmed if their score is
  at the target.
- **Steps**: the median over all seeds; a seed that is not confirmed counts as later than all others. With roles in
  separate processes, a run may exceed the limit by the steps in flight when the limit is reached.
- **Processor time** is that of the whole process, evaluations included, with one thread, while the machine was busy.
  That of interrupted runs is not known ("-").
- An agent marked "(defaults)" has no preset for the environment: the row uses the agent's defaults for such
  environments ([environments](guides/environments.md#an-environment-without-a-preset)).
- Links in the tables lead to the files of a row. `--rows` takes the name of their folder: in a checkout,
  `python -m benchmarks.learn --rows cartpole-dqn --seeds 200` trains this row with another seed. The result is the file
  `cartpole-dqn/seed-200.json`, which is not in the tables: compare its `score` with theirs. A seed that has a file is
  not trained again; `--again` removes the file and trains that seed again.
- For a run of your own, `reverie eval FOLDER --episodes 100` plays the episodes of the score, which have the seeds
  30,000 to 30,099.
- The command of a run, its commit and its machine are in its file (until the morning of 2026-11-28 without the command,
  which is `python -m benchmarks.learn --rows ROW --seeds SEED`; some of those commits are no longer in the history). At
  its commit and with the same versions of packages, a run in one process can be repeated exactly on the same kind of
  processor; on another kind, rounding differs, and the run diverges from the recorded one.
"""
ORIGINS = """\

## Origin of presets and targets

The targets of CartPole (475), MountainCarContinuous (90), LunarLander with PPO (200) and the tasks without a preset are
Gymnasium's thresholds. The others are ours:

| environment | target | why |
|---|---|---|
| LunarLander with Ape-X DQN | 250 | SLM-Lab's double DQN with priorities has 265.9, its DQN 195 (Gymnasium 200) |
| BipedalWalker | 290 | SAC in Stable-Baselines3's zoo has 297.7 (Gymnasium 300) |
| Acrobot with Ape-X DQN | -90 | harder than Gymnasium's -100 |
| Pendulum | -170 | Gymnasium has no threshold |
| Pendulum without velocities | -220 | next to the -218 of Stable-Baselines3's zoo |
| bit flips | -6.5 | between -5, the best return in expectation, and -12, that of episodes without success |
| Pong | 19 | two points below the largest return, 21 |

Limits of steps differ by agent. Screening episodes of Pendulum, those of its curves, begin nearer to upright than the
others: 1.23 rad from it on average, 1.58 in the second evaluation, 1.66 in the episodes of the score. So curves are
higher than scores.

How settings were chosen, as far as it was recorded:

- Ape-X DQN on CartPole: sweeps over seeds 0 to 15 ([cartpole-dqn](measurements/cartpole-dqn.md)).
- Gorila and IMPALA on CartPole: tries with seeds 0 to 9
  ([cartpole-gorila-impala](measurements/cartpole-gorila-impala.md)).
- D4PG on Pendulum: five tries with seed 0.
- PPO on Pendulum without velocities: three rounds, in which 1, 2 and then 5 of seeds 0 to 4 reached the target. Before
  the last round, `noise_theta` was chosen with seeds 10 to 14.
- Ape-X DQN on LunarLander: 24 runs with seeds 10 to 12 ([0166](decisions/0166-munchausen.md)). Before that, earlier
  settings confirmed 250 with three of seeds 0 to 4, and other settings scored 239.6 with seeds 100 to 104.

Earlier results of a row are in the history of its files.
"""
APART_HEAD = """\

## Roles in separate processes

The same presets, but with replay shards, learners, evaluator and actors in separate processes, or on Ray: learners
prefetch batches, actors' weights are older, and no two runs are the same. The columns have the same meaning as above.
"""
DEFAULTS_HEAD = """\

## Tasks without a preset

Each agent with the settings that it takes for an environment without a preset: its defaults for the kind of
environment if it has them, otherwise those of its nearest preset ([0137](decisions/0137-defaults-that-travel.md)).
Only three settings are changed: the target and the limit of steps, which are in the column heading, and
`evaluate_every`. Every run is evaluated, and can stop, every 10,000 steps (PPO's and IMPALA's defaults: 20,000). Each
cell uses up to {seeds} seeds, starting at 0 or at 100; results with the seeds from 0 on were seen while the defaults
were chosen. A cell gives the mean score, how many seeds are confirmed within the steps in the column heading, and the
median of the steps over all seeds. "Preset": the agent has a preset for this task; see the first table.
"""
ABLATION_HEAD = """\

## Ablations of Ape-X DQN

CartPole-v1 with its preset, except for what the row names; {updates:,} updates each and no stop at the target. The
learner does the same work in every row; with twice the actors there are twice as many environment steps. `{baseline}`
is the preset itself, with the actors' own priorities, n = 3, float32 and no Munchausen term; the rows below are
compared with it. The preset's learning rate, target period and epsilon ladder were tuned with these parts in place.
The other rows keep those values, so they show how much the preset depends on a part, and not the value of the part
with settings tuned for it. "Mean of the curve" is the greedy return averaged over 20 points, one every 250 updates:
an agent that learns sooner, and does not fall back, has a higher mean. Where the intervals of two rows overlap, no
difference is claimed.
"""
PARTS_HEAD = """\

## Parts of Rainbow

MinAtar/Breakout-v0 with its preset, which has a categorical head, noisy layers, two streams, priorities, three steps
and double Q-learning, except for what the row names. `munchausen` has the quantile head and no double Q-learning;
`quantile-no-double` is the same without Munchausen. {steps:,} environment steps and no stop at the target, up to
{seeds} seeds. "Mean of the curve" is the greedy return averaged over ten points, one every 25,000 steps. An interrupted
run has its own line, with the part of the curve recorded so far.
"""
OFFLINE_HEAD = """\

## From data sets

Agents that learn from a data set, with their presets except for what the row names; only evaluations play the
environment. A policy of SAC (Pendulum-v1) or DQN (CartPole-v1) was trained with seed 0 until its target was confirmed
(SAC: 5,000 steps), and recorded for 10,000 steps with its exploration (`reverie data record`; the commands are in the
files of a row). In "pendulum-noisy" 30% of the actions are uniform, in "cartpole-narrow" 5%, and in "pendulum-narrow"
none, so that the narrow sets have hardly any actions that are not the policy's. "Its mean return" is that of the data
set's episodes. With `advantage_scale=0`, IQL imitates the data; with `conservative_weight=0`, CQL is SAC or DQN
without playing. "Score" and the brackets are those of the first table.
"""
CONTROL_HEAD = """\

## Walkers of MuJoCo

Up to {seeds} seeds, without a stop at a target. SAC, TD3 and D4PG have a preset for each; PPO uses its defaults for
continuous actions. `--config droq` is SAC with HalfCheetah-v5's preset, four updates of the critics and one of the
policy for each step, the policy by the mean of the critics, and critics with dropout and layer norm.
Stable-Baselines3's SAC, with the settings of its zoo, is evaluated on the same seeds. On HalfCheetah-v5 our SAC has
the same settings; on Hopper-v5 it has its own, so that pair compares settings, not implementations. "Mean of the
curve" is the greedy return of ten episodes, averaged over points every 10,000 steps (PPO: 20,000). For rows of
different lengths, "mean to {first}" is the average over points every 20,000 steps up to there. "Last weights" is the
return of 100 other episodes. The processor time of Stable-Baselines3 excludes starting its process. An interrupted
run has its own line, with the part of the curve recorded so far.
"""
