-- Three steps of training in a profile; the trace files are written to the folder in the argument.
local accelhost = require "accelhost"
local nn, F, optim, data = accelhost.nn, accelhost.nn.functional, accelhost.optim, accelhost.data
local folder = ...

accelhost.manual_seed(0)
local accelerator = accelhost.Accelerator {bucket_cap_mb = 0.001}
local model = nn.Sequential(nn.Linear(784, 32), nn.ReLU(), nn.Linear(32, 10))
local optimizer = optim.SGD(model:parameters(), {lr = 0.1})
local loader = data.DataLoader(data.SyntheticDigits {size = 16 * 5 * accelerator.num_processes}, {batch_size = 16})
model, optimizer, loader = accelerator:prepare(model, optimizer, loader)

local rounds = 0
local prof = accelerator:profile({
  schedule = {wait = 1, warmup = 1, active = 3, repeats = 1}, record_shapes = true, with_stack = true,
  with_modules = true, output_trace_dir = folder, on_trace_ready = function() rounds = rounds + 1 end,
}, function(prof)
  for images, labels in loader do
    local loss = accelhost.profiler.record_function("forward \"pass\"", function()
      return F.cross_entropy(model(images:flatten(1)), labels)
    end)
    accelerator:backward(loss)
    optimizer:step()
    optimizer:zero_grad()
    prof:step()
  end
end)

local counts = {}
for _, row in ipairs(prof:key_averages()) do counts[row.key] = row.count end
accelerator:print(rounds, counts.linear, counts.backward, counts["backward of linear"], counts.SGD,
  counts['forward "pass"'], counts["ProfilerStep*"], counts["wait for a batch"])
