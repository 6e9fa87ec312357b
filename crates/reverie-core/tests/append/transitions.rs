//! N-step transitions of vector environments against a brute-force reading of the episodes.

use super::support::{self, leaf, options, tables};
use proptest::prelude::*;
use reverie_core::append::{ColumnCells, RightEnds, Sink, TransitionOptions, TransitionStep, TransitionWriter};
use reverie_core::chunk::Compression;
use reverie_core::item::Item;
use reverie_core::spec::DType;
use reverie_core::table::{Inserts, Priority, Tables};
use std::sync::Arc;

fn writer(num_envs: usize, n_step: usize, frame_stack: Option<usize>, right_ends: RightEnds) -> TransitionWriter {
    let (tables, _) = tables(vec![options("t", 10)]);
    writer_to(tables, num_envs, n_step, frame_stack, right_ends)
}

fn writer_to(
    tables: Arc<Tables>,
    num_envs: usize,
    n_step: usize,
    frame_stack: Option<usize>,
    right_ends: RightEnds,
) -> TransitionWriter {
    let sink: Arc<dyn Sink> = tables;
    let options = TransitionOptions {
        num_envs,
        n_step,
        discount: 0.9,
        frame_stack,
        stack_axis: 0,
        right_ends,
        priority_eps: 0.5,
        priority_clip: f64::INFINITY,
        priority_unit: 1.0,
        priority: Priority::Value(1.0),
        compression: Compression::None,
    };
    TransitionWriter::new(&sink, options, &leaf(DType::Float64, &[]), &leaf(DType::Int64, &[]), None).unwrap()
}

/// The contents of an item, read through its pattern: obs, action, reward, discount, next_obs.
#[derive(Clone, Debug, PartialEq)]
struct Transition {
    obs: Vec<f64>,
    action: i64,
    reward: f32,
    discount: f32,
    next_obs: Vec<f64>,
}

fn read(item: &Item) -> Transition {
    item.check().unwrap();
    let paths: Vec<&str> = item.pattern.columns.iter().map(|column| column.spec.path.as_str()).collect();
    assert_eq!(paths, ["action", "discount", "next_obs", "obs", "reward"]);
    let cells = |column: usize| -> Vec<Vec<u8>> {
        (0..item.pattern.columns[column].cells.len()).map(|index| support::cell(item, column, index)).collect()
    };
    let f64s = |column| cells(column).into_iter().map(|c| f64::from_ne_bytes(c.try_into().unwrap())).collect();
    let f32s = |column: usize| f32::from_ne_bytes(cells(column).remove(0).try_into().unwrap());
    Transition {
        action: i64::from_ne_bytes(cells(0).remove(0).try_into().unwrap()),
        discount: f32s(1),
        next_obs: f64s(2),
        obs: f64s(3),
        reward: f32s(4),
    }
}

/// One step as an environment would report it.
#[derive(Clone, Copy, Debug)]
struct Step {
    reward: f64,
    terminated: bool,
    truncated: bool,
}

/// The transitions of one whole episode, by the definition. `obs` has one more entry than `steps`.
fn by_definition(obs: &[f64], steps: &[Step], n: usize, frames: usize) -> Vec<Transition> {
    let length = steps.len();
    let stack = |at: usize| (0..frames).rev().map(|back| obs[at.saturating_sub(back)]).collect();
    (0..length)
        .map(|start| {
            let end = (start + n).min(length);
            let reward: f64 = (start..end).map(|k| 0.9_f64.powi((k - start) as i32) * steps[k].reward).sum();
            let ends = end == length && steps[length - 1].terminated;
            let discount = if ends { 0.0 } else { 0.9_f64.powi((end - start) as i32) };
            Transition {
                obs: stack(start),
                action: obs[start] as i64,
                reward: reward as f32,
                discount: discount as f32,
                next_obs: stack(end),
            }
        })
        .collect()
}

fn close(a: &Transition, b: &Transition) -> bool {
    let near = |a: f32, b: f32| (a - b).abs() <= 1e-4 * (1.0 + b.abs());
    (&a.obs, a.action, &a.next_obs) == (&b.obs, b.action, &b.next_obs)
        && near(a.reward, b.reward)
        && near(a.discount, b.discount)
}

fn step() -> impl Strategy<Value = Step> {
    (-5.0..5.0_f64, 0..12_u8).prop_map(|(reward, end)| Step {
        reward,
        terminated: end < 2,
        truncated: end == 1 || end == 2,
    })
}

/// Runs environments whose observations are consecutive numbers through a writer. Returns what it wrote, by
/// environment, and the transitions of the ended episodes by the definition.
fn run(
    writer: &mut TransitionWriter,
    steps: &[Vec<Step>],
    (n, frames, right_ends): (usize, usize, RightEnds),
) -> (Vec<Vec<Transition>>, Vec<Vec<Transition>>) {
    let envs = steps.len();
    let mut obs: Vec<f64> = (0..envs).map(|env| 1000.0 * env as f64).collect();
    let mut episodes: Vec<(Vec<f64>, Vec<Step>)> = obs.iter().map(|first| (vec![*first], vec![])).collect();
    let mut resetting = vec![false; envs];
    let mut ended = vec![vec![]; envs];
    let mut written = vec![vec![]; envs];
    let length = steps[0].len();
    for (time, _) in (0..length).enumerate() {
        let now: Vec<Step> = (0..envs)
            .map(|env| {
                if resetting[env] {
                    Step { reward: 77.0, terminated: false, truncated: false }
                } else {
                    steps[env][time]
                }
            })
            .collect();
        let actions: Vec<i64> = obs.iter().map(|value| *value as i64).collect();
        let after: Vec<f64> = obs.iter().map(|value| value + 1.0).collect();
        let bytes = |values: &[f64]| -> Vec<u8> { values.iter().flat_map(|value| value.to_ne_bytes()).collect() };
        let (obs_bytes, after_bytes) = (bytes(&obs), bytes(&after));
        let action_bytes: Vec<u8> = actions.iter().flat_map(|value| value.to_ne_bytes()).collect();
        let columns =
            [ColumnCells { itemsize: 8, bytes: &obs_bytes }, ColumnCells { itemsize: 8, bytes: &action_bytes }];
        let final_obs = [ColumnCells { itemsize: 8, bytes: &after_bytes }];
        let column = |f: fn(&Step) -> bool| now.iter().map(f).collect::<Vec<bool>>();
        let given = right_ends == RightEnds::Given;
        let items = writer
            .append(&TransitionStep {
                columns: &columns,
                rewards: &now.iter().map(|step| step.reward).collect::<Vec<f64>>(),
                terminated: &column(|step| step.terminated),
                truncated: &column(|step| step.truncated),
                q_taken: None,
                bootstrap: None,
                final_obs: given.then_some(&final_obs),
                final_value: None,
            })
            .unwrap();
        collect(&items, &mut written);
        for env in 0..envs {
            let was_reset = std::mem::take(&mut resetting[env]);
            let (seen, taken) = &mut episodes[env];
            obs[env] = after[env];
            if was_reset {
                ended[env].extend(by_definition(seen, taken, n, frames));
                (*seen, *taken) = (vec![obs[env]], vec![]);
                continue;
            }
            seen.push(after[env]);
            taken.push(now[env]);
            if now[env].terminated || now[env].truncated {
                match given {
                    true => {
                        ended[env].extend(by_definition(seen, taken, n, frames));
                        obs[env] += 1.0;
                        (*seen, *taken) = (vec![obs[env]], vec![]);
                    }
                    false => resetting[env] = true,
                }
            }
        }
    }
    (written, ended)
}

/// Every item has the priority that the writer was given, as no values were given.
fn collect(items: &Inserts, written: &mut [Vec<Transition>]) {
    for (item, priority) in items {
        assert_eq!(*priority, Priority::Value(1.0));
        let transition = read(item);
        written[transition.obs[0] as usize / 1000].push(transition);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn transitions_follow_the_definition_with_every_tail_at_an_episodes_end(
        (envs, n, frames, given) in (1..4_usize, 1..6_usize, 1..5_usize, any::<bool>()),
        length in 1..90_usize,
        seeds in prop::collection::vec(step(), 360),
    ) {
        let right_ends = if given { RightEnds::Given } else { RightEnds::NextAppend };
        let steps: Vec<Vec<Step>> = (0..envs).map(|env| seeds[env * 90..env * 90 + length].to_vec()).collect();
        let stack = (frames > 1).then_some(frames);
        let mut writer = writer(envs, n, stack, right_ends);
        let (written, ended) = run(&mut writer, &steps, (n, frames, right_ends));
        for env in 0..envs {
            // Whole episodes come out complete, in order; what follows is of an episode that has not ended.
            prop_assert!(written[env].len() >= ended[env].len());
            for (got, want) in written[env].iter().zip(&ended[env]) {
                prop_assert!(close(got, want), "environment {env}: got {got:?}, want {want:?}");
            }
        }
    }
}

fn append_one(writer: &mut TransitionWriter, obs: f64, step: Step, q: f64, v: f64) -> Inserts {
    let (obs, action) = (obs.to_ne_bytes(), 0_i64.to_ne_bytes());
    writer
        .append(&TransitionStep {
            columns: &[ColumnCells { itemsize: 8, bytes: &obs }, ColumnCells { itemsize: 8, bytes: &action }],
            rewards: &[step.reward],
            terminated: &[step.terminated],
            truncated: &[step.truncated],
            q_taken: Some(&[q]),
            bootstrap: Some(&[v]),
            final_obs: None,
            final_value: None,
        })
        .unwrap()
}

const GO: Step = Step { reward: 1.0, terminated: false, truncated: false };

#[test]
fn the_priority_is_the_absolute_n_step_td_error_of_the_actors_values() {
    let mut writer = writer(1, 2, None, RightEnds::NextAppend);
    assert!(append_one(&mut writer, 0.0, GO, 10.0, 0.0).is_empty());
    assert!(append_one(&mut writer, 1.0, GO, 20.0, 0.0).is_empty());
    let items = append_one(&mut writer, 2.0, GO, 0.0, 4.0);
    // |1 + 0.9 + 0.81 * 4 - 10| + 0.5
    let Priority::Value(priority) = items[0].1 else { panic!("a priority was computed") };
    assert!((priority - (10.0 - 5.14 + 0.5)).abs() < 1e-12, "{priority}");
}

#[test]
fn truncation_bootstraps_from_the_last_observation_and_termination_does_not() {
    for (terminated, want) in [(true, 1.0 - 10.0_f64), (false, 1.0 + 0.9 * 4.0 - 10.0)] {
        let mut writer = writer(1, 3, None, RightEnds::NextAppend);
        append_one(&mut writer, 0.0, Step { terminated, truncated: !terminated, ..GO }, 10.0, 0.0);
        let items = append_one(&mut writer, 1.0, Step { reward: 99.0, ..GO }, 0.0, 4.0);
        let Priority::Value(priority) = items[0].1 else { panic!("a priority was computed") };
        assert!((priority - (want.abs() + 0.5)).abs() < 1e-12, "{priority}");
        let item = read(&items[0].0);
        assert_eq!((item.next_obs[0], item.discount), (1.0, if terminated { 0.0 } else { 0.9 }));
    }
}

#[test]
fn a_terminal_step_has_its_own_priority_without_a_value_of_what_comes_behind_it() {
    let mut writer = writer(1, 2, None, RightEnds::Given);
    let (obs, last, action) = (0_f64.to_ne_bytes(), 1_f64.to_ne_bytes(), 0_i64.to_ne_bytes());
    let items = writer.append(&TransitionStep {
        columns: &[ColumnCells { itemsize: 8, bytes: &obs }, ColumnCells { itemsize: 8, bytes: &action }],
        rewards: &[3.0],
        terminated: &[true],
        truncated: &[false],
        q_taken: Some(&[10.0]),
        bootstrap: Some(&[4.0]),
        final_obs: Some(&[ColumnCells { itemsize: 8, bytes: &last }]),
        final_value: None,
    });
    let Priority::Value(priority) = items.unwrap()[0].1 else { panic!("a priority was computed") };
    assert_eq!(priority, 7.5, "|3 - 10|, and priority_eps");
}

#[test]
fn the_step_after_an_end_is_no_transition_under_next_step_autoreset() {
    let mut writer = writer(1, 1, None, RightEnds::NextAppend);
    append_one(&mut writer, 0.0, Step { terminated: true, ..GO }, 0.0, 0.0);
    assert_eq!(append_one(&mut writer, 1.0, GO, 0.0, 0.0).len(), 1);
    // The first step of the new episode only begins an item.
    assert!(append_one(&mut writer, 50.0, GO, 0.0, 0.0).is_empty());
    let items = append_one(&mut writer, 51.0, GO, 0.0, 0.0);
    assert_eq!((read(&items[0].0).obs[0], read(&items[0].0).next_obs[0]), (50.0, 51.0));
}

#[test]
fn finishing_gives_shorter_items_to_steps_with_a_later_observation_and_counts_the_last() {
    let mut writer = writer(1, 3, None, RightEnds::NextAppend);
    for obs in 0..3 {
        assert!(append_one(&mut writer, f64::from(obs), GO, 0.0, 0.0).is_empty());
    }
    let items: Vec<Transition> = writer.finish(None).unwrap().iter().map(|(item, _)| read(item)).collect();
    let ends: Vec<(f64, f64, f32)> = items.iter().map(|t| (t.obs[0], t.next_obs[0], t.reward)).collect();
    assert_eq!(ends, [(0.0, 2.0, 1.9), (1.0, 2.0, 1.0)]);
    assert_eq!(writer.dropped(), 1);
    assert!(append_one(&mut writer, 10.0, GO, 0.0, 0.0).is_empty());
    append_one(&mut writer, 11.0, GO, 0.0, 0.0);
    append_one(&mut writer, 12.0, GO, 0.0, 0.0);
    assert_eq!(read(&append_one(&mut writer, 13.0, GO, 0.0, 0.0)[0].0).obs, [10.0]);
}

#[test]
fn a_writer_that_was_finished_holds_no_chunk() {
    for (steps, ends) in (1..300).flat_map(|steps| [(steps, false), (steps, true)]) {
        let (tables, _) = tables(vec![options("t", 10)]);
        let mut writer = writer_to(tables.clone(), 1, 3, Some(2), RightEnds::NextAppend);
        for step in 0..steps {
            append_one(&mut writer, f64::from(step), GO, 0.0, 0.0);
        }
        if ends {
            append_one(&mut writer, -1.0, Step { terminated: true, ..GO }, 0.0, 0.0);
            append_one(&mut writer, -2.0, GO, 0.0, 0.0);
        }
        drop(writer.finish(None).unwrap());
        assert_eq!(tables.bytes().0.live_chunks(), 0, "after {steps} steps");
    }
}

#[test]
fn finishing_with_values_that_do_not_fit_refuses_and_loses_nothing() {
    let mut writer = writer(1, 3, None, RightEnds::NextAppend);
    append_one(&mut writer, 0.0, GO, 0.0, 0.0);
    append_one(&mut writer, 1.0, GO, 0.0, 0.0);
    for values in [&[f64::NAN][..], &[], &[0.0, 1.0]] {
        let error = writer.finish(Some(values)).unwrap_err();
        assert!(error.to_string().contains("bootstrap_value"), "{error}");
    }
    assert_eq!(writer.finish(Some(&[0.0])).unwrap().len(), 1);
}

#[test]
fn values_that_are_not_finite_are_refused_before_anything_is_written() {
    let mut writer = writer(1, 1, None, RightEnds::NextAppend);
    let bytes = 0_f64.to_ne_bytes();
    let columns = [ColumnCells { itemsize: 8, bytes: &bytes }, ColumnCells { itemsize: 8, bytes: &bytes }];
    let cases: [(&[f64], &[f64], &str); 4] = [
        (&[f64::NAN], &[0.0], "reward"),
        // Rewards are stored as float32.
        (&[1e300], &[0.0], "reward"),
        (&[0.0], &[f64::INFINITY], "q_taken"),
        (&[0.0, 1.0], &[0.0], "reward"),
    ];
    for (rewards, q, name) in cases {
        let step = TransitionStep {
            columns: &columns,
            rewards,
            terminated: &[false],
            truncated: &[false],
            q_taken: Some(q),
            bootstrap: None,
            final_obs: None,
            final_value: None,
        };
        let error = writer.append(&step).unwrap_err().to_string();
        assert!(error.contains(name), "{error}");
    }
    assert!(append_one(&mut writer, 1.0, GO, 0.0, 0.0).is_empty());
    assert_eq!(append_one(&mut writer, 2.0, GO, 0.0, 0.0).len(), 1, "nothing of the refused steps was kept");
}
