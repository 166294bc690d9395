-- The time of a training step by ops: a profile of a few steps as a table of sums, and a trace for
-- https://ui.perfetto.dev, one file for each process, with ops, nodes of backward, collectives, and how the buckets of
-- gradients are under way meanwhile.
--
--   accelhost launch --num_processes 2 examples/by_feature/profiler.lua --output_trace_dir traces
local accelhost = require "accelhost"
local nn, F, optim, data = accelhost.nn, accelhost.nn.functional, accelhost.optim, accelhost.data

local args = accelhost.parse_args {
  description = "Trains a classifier of generated digits and profiles some of its steps.",
  {"batch_size", 64, "samples in a batch of each process", integer = true, minimum = 1},
  {"wait", 2, "steps before the recording", integer = true, minimum = 0},
  {"active", 5, "steps that are recorded", integer = true, minimum = 1},
  {"rows", 12, "rows of the table", integer = true, minimum = 1},
  {"output_trace_dir", nil, "folder for the traces (default: none are written)", type = "string", metavar = "DIR"},
  {"smoke", false, "the same in a few seconds"},
}
if args.smoke then args.active, args.rows = 2, 5 end

local accelerator = accelhost.Accelerator()
local logger = accelhost.logging.get_logger "profiler"
accelhost.set_seed(1)
local model = nn.Sequential(nn.Conv2d(1, 8, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(),
  nn.Linear(8 * 13 * 13, 64), nn.ReLU(), nn.Linear(64, 10))
local optimizer = optim.SGD(model:parameters(), {lr = 0.05, momentum = 0.9})
local steps = args.wait + 1 + args.active
local digits = data.SyntheticDigits {size = steps * args.batch_size * accelerator.num_processes}
local loader = data.DataLoader(digits, {batch_size = args.batch_size, shuffle = true})
model, optimizer, loader = accelerator:prepare(model, optimizer, loader)

local function train(prof)
  for images, labels in loader do
    -- A range of one's own shows in the table and in the trace.
    local loss = accelhost.profiler.record_function("forward", function()
      return F.cross_entropy(model(images), labels)
    end)
    accelerator:backward(loss)
    optimizer:step()
    optimizer:zero_grad()
    prof:step() -- advances the schedule at the end of a step
  end
end

local prof = accelerator:profile({
  schedule = {wait = args.wait, warmup = 1, active = args.active, repeats = 1},
  record_shapes = true, profile_memory = true, output_trace_dir = args.output_trace_dir,
}, train)

local sums = prof:key_averages()
accelerator:print(sums:table {sort_by = "self_cpu_time_total", row_limit = args.rows})
if args.output_trace_dir then
  logger:info("wrote %s/profile_%d.json", args.output_trace_dir, accelerator.process_index, {in_order = true})
end

local whole = 0
for _, row in ipairs(sums) do
  if row.key == "ProfilerStep*" then whole = row.cpu_time end
end
accelerator:print(("Milliseconds: %.2f a step"):format(whole / 1000))
