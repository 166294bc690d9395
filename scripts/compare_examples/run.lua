-- Runs the examples and the same programs in PyTorch in turn, one thread each, and prints both results.
-- usage: accelhost scripts/compare_examples/run.lua DATA [NAME...]
-- DATA: folder with mnist/, sst2/, cifar10/. PYTHON (default python3) has PyTorch.
local here = arg[0]:match "^(.*)/" or "."
local now = require("accelhost._C").system.now
local host = io.popen("readlink /proc/$PPID/exe"):read "*l"
local root = here .. "/../../examples"
local python = os.getenv "PYTHON" or "python3"
local data = arg[1] or error("usage: accelhost scripts/compare_examples/run.lua DATA [NAME...]", 0)
local mnist = data .. "/mnist"

-- name, arguments here, arguments there
local programs = {
  {"text_classifier", ("--train %s/sst2/train.tsv --test %s/sst2/test.tsv --epochs 1"):format(data, data),
    ("%s/sst2/train.tsv %s/sst2/test.tsv 1"):format(data, data)},
  {"vae", ("--data %s --epochs 2"):format(mnist), mnist .. " 2"},
  {"gan", ("--data %s --epochs 2"):format(mnist), mnist .. " 2"},
  {"custom_function", ("--data %s --epochs 2"):format(mnist), mnist .. " 2"},
  {"by_feature/early_stopping", ("--data %s --best %s"):format(mnist, os.tmpname()), mnist .. " 50"},
  {"lstm", "--epochs 5", "5"},
}

--- The last line that a command prints, and the seconds that it ran.
local function result_of(command)
  local begin, last = now(), "nothing"
  local pipe = io.popen("OMP_NUM_THREADS=1 " .. command .. " 2>&1")
  for line in pipe:lines() do last = line:match "[^\r]*$" end
  pipe:close()
  return last, now() - begin
end

local wanted = {}
for i = 2, #arg do wanted[arg[i]] = true end
print("| example | accelhost | s | PyTorch | s |\n|---|---|---:|---|---:|")
for _, program in ipairs(programs) do
  local name, ours, theirs = unpack(program)
  if #arg == 1 or wanted[name] then
    local our_line, our_time = result_of(("%s %s/%s.lua %s"):format(host, root, name, ours))
    local their_line, their_time = result_of(("%s %s/%s.py %s"):format(python, here, name:match "[^/]+$", theirs))
    print(("| %s | %s | %.1f | %s | %.1f |"):format(name, our_line, our_time, their_line, their_time))
    io.stdout:flush()
  end
end
