-- The n-th request for memory fails, for every n: each run ends with an error that says so, or well where memory was
-- not vital. $FAIL_ALLOC_BINARY is a program built with FAIL_ALLOC=1; $N bounds the requests tried of each job.
local binary = assert(os.getenv("FAIL_ALLOC_BINARY"), "FAIL_ALLOC_BINARY: make test-faults sets it")
local bound = tonumber(os.getenv("N") or "")

local step = [[
local accelhost = require "accelhost"
local nn, F, optim = accelhost.nn, accelhost.nn.functional, accelhost.optim
accelhost.manual_seed(0)
local model = nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(),
  nn.Linear(2 * 3 * 3, 4))
local optimizer = optim.AdamW(model:parameters(), {lr = 1e-3})
local x, y = accelhost.randn(4, 1, 8, 8), accelhost.tensor({0, 1, 2, 3}, {dtype = "int64"})
]]

local jobs = {
  {name = "start", words = {"-e", "print(1)"}},
  {name = "a training step", words = {"-e", step .. [[
for _ = 1, 2 do
  local loss = F.cross_entropy(model(x), y)
  optimizer:zero_grad()
  loss:backward()
  optimizer:step()
end
print(#tostring(model:state_dict()["5.weight"]))]]}},
  {name = "prepare and a loader", words = {"-e", step .. [[
local data = accelhost.data
local accelerator = accelhost.Accelerator()
local loader = data.DataLoader(data.TensorDataset(x, y), {batch_size = 2, shuffle = true})
model, optimizer, loader = accelerator:prepare(model, optimizer, loader)
for images, labels in loader do
  local loss = F.cross_entropy(model(images), labels)
  accelerator:backward(loss)
  optimizer:step()
  optimizer:zero_grad()
end]]}},
  {name = "launch", words = {"launch", "--num_processes", "2", "--timeout", "20", "-e", [[
local accelhost = require "accelhost"
local accelerator = accelhost.Accelerator()
local model = accelerator:prepare(accelhost.nn.Linear(3, 2))
accelerator:backward(model(accelhost.ones(2, 3)):sum())
accelerator:print("done")]]}},
}

local function quoted(text) return "'" .. text:gsub("'", "'\\''") .. "'" end

-- Run a job with an environment; returns the exit status as the shell tells it (128 + n for a signal) and the output.
local function run(job, environment)
  -- Closing at the end lets a sanitizer look for leaks and the count be written.
  local words = {environment, "ACCELHOST_CLOSE=1 timeout -s KILL 60", quoted(binary)}
  for _, word in ipairs(job.words) do words[#words + 1] = quoted(word) end
  local pipe = assert(io.popen(table.concat(words, " ") .. " 2>&1; echo \"=$?\""))
  local text = pipe:read("*a")
  pipe:close()
  local output, code = text:match("^(.*)=(%d+)\n$")
  return tonumber(code), output
end

local failures = 0
local function complain(job, n, code, output)
  failures = failures + 1
  print(("FAILED %s, request %s: status %d: %s"):format(job.name, n, code, output:sub(1, 600)))
end

-- An error is one that a person can act on: status 1 to 4, and a text that names memory.
local function judge(job, n, code, output)
  local named = output:lower():find("memory") or output:find("cannot allocate") or output:find("not enough")
  if code ~= 0 and not (code >= 1 and code <= 4 and named) then complain(job, n, code, output) end
end

local counts = os.tmpname()
for _, job in ipairs(jobs) do
  os.remove(counts)
  local code, output = run(job, "ACCELHOST_COUNT_ALLOC=" .. counts)
  if code ~= 0 then complain(job, "none", code, output) end
  local most = 0
  for line in io.lines(counts) do most = math.max(most, tonumber(line)) end
  local ended = {[true] = 0, [false] = 0}
  for n = 1, most, bound and math.ceil(most / bound) or 1 do
    for _, form in ipairs {"", "+"} do
      code, output = run(job, ("ACCELHOST_FAIL_ALLOC=%d%s"):format(n, form))
      judge(job, n .. form, code, output)
      ended[code == 0] = ended[code == 0] + 1
    end
  end
  print(("%s: %d requests; %d runs ended with an error, %d well"):format(job.name, most, ended[false], ended[true]))
end
os.remove(counts)
os.exit(failures == 0 and 0 or 1)
