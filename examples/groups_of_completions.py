"""Groups of completions (GRPO, Shao et al. 2024), of any lengths, go through a queue as a whole; `reverie[torch]`."""

import numpy as np
import torch

import reverie

NUM_PROMPTS, GROUP_SIZE, GROUPS, UPDATES, LONGEST = 6, 8, 6, 60, 10
torch.manual_seed(1)
policy = torch.nn.Embedding(NUM_PROMPTS + 1, NUM_PROMPTS + 1)  # The logits of the token after a token; 0 ends.
group_of_any_size = {
    "tokens": reverie.TensorSpec((None,), np.int64),
    "lengths": reverie.TensorSpec((GROUP_SIZE,), np.int64),
    "rewards": reverie.TensorSpec((GROUP_SIZE,), np.float64),
}
queue = reverie.Table.queue("groups", max_size=GROUPS, signature=group_of_any_size)
client = reverie.Server([queue], listen=False).client()


def complete(prompt: int) -> list[int]:
    """The prompt and a completion, drawn from the newest policy."""
    tokens = [prompt]
    while tokens[-1] != 0 and len(tokens) < LONGEST:
        tokens.append(int(policy.weight[tokens[-1]].softmax(dim=0).multinomial(1)))
    return tokens


def reward(tokens: list[int]) -> float:
    """The share that is right, from the start: completions count down from the prompt to 0."""
    right = [ours == theirs for ours, theirs in zip(tokens[1:], reversed(range(tokens[0])), strict=False)]
    return [*right, False].index(False) / tokens[0]


def generate() -> None:
    """Fills the queue: an item has the tokens of a group, one after another, their numbers `[G]`, and rewards `[G]`."""
    for group in range(GROUPS):
        completions = [complete(1 + group % NUM_PROMPTS) for _ in range(GROUP_SIZE)]
        lengths, rewards = (np.array([of(tokens) for tokens in completions]) for of in (len, reward))
        client.insert({"tokens": np.concatenate(completions), "lengths": lengths, "rewards": rewards}, {"groups": 1.0})


optimizer = torch.optim.Adam(policy.parameters(), lr=0.1)
for _ in range(UPDATES):
    generate()  # Other processes or hosts may do this: the queue holds back those that are ahead of the updates.
    batch = client.sample_batch("groups", GROUPS, timeout=60.0, ragged="values")
    tokens, lengths, rewards = (torch.from_numpy(batch.data[name]) for name in ("tokens", "lengths", "rewards"))
    # Each completion is compared with the others of its group.
    advantages = (rewards - rewards.mean(dim=1, keepdim=True)) / (rewards.std(dim=1, keepdim=True) + 1e-4)
    completion = torch.arange(lengths.numel()).repeat_interleave(lengths.flatten())[1:]  # Of each token but the first.
    log_probs = policy(tokens[:-1]).log_softmax(dim=1).gather(1, tokens[1:, None]).squeeze(1)
    follows = torch.arange(len(tokens))[1:, None] != lengths.flatten().cumsum(0)  # False for a prompt.
    loss = -(advantages.flatten()[completion] * log_probs)[follows.all(dim=1)].mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print(f"mean reward of the last groups: {rewards.mean():.2f}")
assert rewards.mean() > 0.8, "that of a random policy is below 0.2"
