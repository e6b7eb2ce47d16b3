#include "engine/model/testing/tiny_tokenizer.h"

namespace holdfast::model::testing {

const char kTinyTrainingText[] = R"TEXT(
You are a helpful assistant. The user asks a question and the assistant gives
an answer. When a tool is needed, the assistant calls the function by its name
with arguments as a JSON object, reads the result, and goes on from there.

A harbour keeps its ships through the winter because someone walks along the
quay every evening and looks at each of the ropes. Nobody thanks the man who
does this; he is only noticed in the year when he is ill and the storm comes.
Most of the work that keeps things standing is of this kind. It is done again
and again, it is never finished, and it leaves no mark other than the absence
of damage.

The river rose in the night. By morning the lower meadow was a lake, and the
fence posts stood in the water like a row of people waiting for a train. We
carried the chairs upstairs, then the books, then the clock, which went on
ticking on the landing as if nothing had happened. My grandmother said that
water always remembers where it has been before. She had seen it three times
and was not afraid of it, but she counted the steps: when the fourth was wet,
it would be time to leave.

How do you bake bread without an oven? You need a heavy pot with a lid, a fire
that has burned down to embers, and patience. Mix flour, water, salt and a
little of the old dough, let it rest until it has doubled, then fold it twice.
Heat the pot, put the dough inside, close the lid and cover it with ash. After
forty minutes it is done. If it sounds hollow when you knock on it, it is good.

Numbers: 0 1 2 3 4 5 6 7 8 9 10 11 12 16 20 24 32 64 100 128 255 256 512 1000
1024 2048 4096 8192 65536. In 2019 about 37 percent of them were new; by 2024
it was 52.5 percent. Call 555-0137 or write to office@example.org before 17:30.

# Reading a file line by line
def count_words(path):
    """Return a dict from word to number of occurrences."""
    counts = {}
    with open(path, encoding="utf-8") as file:
        for line in file:
            for word in line.split():
                counts[word] = counts.get(word, 0) + 1
    return counts

def main():
    counts = count_words("notes.txt")
    for word, number in sorted(counts.items(), key=lambda item: -item[1]):
        print(word, number)

if __name__ == "__main__":
    main()

#include <string>
#include <vector>

namespace example {
// Returns the sum of all values, or zero when there are none.
int Sum(const std::vector<int>& values) {
  int sum = 0;
  for (int value : values) {
    if (value < 0) continue;
    sum += value;
  }
  return sum;
}
}  // namespace example

{"name": "get_weather", "description": "Returns the weather of a city.",
 "parameters": {"type": "object", "properties": {"city": {"type": "string"},
 "days": {"type": "integer"}}, "required": ["city"]}}
{"name": "read_file", "arguments": {"path": "src/main.cc", "offset": 0}}
{"type": "function", "function": {"name": "write_file", "arguments": "{}"}}

$ git status
$ ls -l src tests
total 16
-rw-r--r-- 1 user user 1204 main.cc
-rw-r--r-- 1 user user  873 main_test.cc
error: expected ';' before 'return' at line 42

The committee met on Tuesday and could not agree. One side wanted to repair
the bridge now, while the other wished to wait for the report of the engineer.
"We have waited for two years," said the first speaker, "and every winter the
cracks are longer." It was decided to ask for money, which is what committees
decide when they cannot decide anything else. The question of the school roof
was put off until the next meeting, as it had been at the last.

It's late; that's what they'd say, and we'll see whether you're right. I've
been told she doesn't mind, he can't come, and there isn't anything that we
shouldn't try. What is the difference between a plan and a wish? A plan has a
date. What would you do if the date could not be kept? Say so before it comes.

Please write a short summary of the following text. Explain step by step how
the program works and where it could fail. First, the input is checked. Second,
the values are read into memory. Third, the result is computed and printed. If
something goes wrong, an error message is returned that names the file and the
line. Then the user can change the input and try again.

- Morning: walk the dog, feed the cat, water the plants.
- Noon: read the letters, answer those that can be answered.
- Evening: close the windows, check the stove, wind the clock.

Stars do not fall, although we say they do. What we see is dust, a grain no
larger than a seed of sand, that has been on its way for longer than there have
been eyes to see it, and burns up within a second. The light takes less time
than a breath. The children on the hill did not know this, or knew it and did
not care; they counted aloud, and at every new one they shouted together, until
the sky turned grey and the last of them was carried home asleep.
)TEXT";

}  // namespace holdfast::model::testing
