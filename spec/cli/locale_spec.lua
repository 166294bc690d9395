-- Locales with a decimal comma: numbers keep their point in every file and text.
local folder = require "spec.support.folder"
local run = require "spec.support.run"

local SCRIPT = [[
local folder, setter = arg[1], arg[2]
if setter == "library" then
  local ffi = require "ffi"
  ffi.cdef "char *setlocale(int category, const char *name);"
  assert(ffi.C.setlocale(6, "de_DE.UTF-8") ~= nil) -- LC_ALL
else
  assert(os.setlocale("de_DE.UTF-8"))
end
assert(os.setlocale(nil, "time") == "de_DE.UTF-8" and os.setlocale(nil, "numeric") == "C")
local accelhost = require "accelhost"
local accelerator = accelhost.Accelerator {log_with = "all", project_dir = folder}
accelerator:init_trackers "run"
local net = accelhost.nn.Linear(1, 1)
local optimizer = accelhost.optim.SGD(net:parameters(), {lr = 0.125})
local scheduler = accelhost.optim.lr_scheduler.StepLR(optimizer, 1, {gamma = 0.5})
net, optimizer, scheduler = accelerator:prepare(net, optimizer, scheduler)
optimizer:step()
scheduler:step()
accelerator:log({loss = 1 / 7}, {step = 1})
accelerator:save_state(folder .. "/state")
accelerator:load_state(folder .. "/state")
accelerator:end_training()
local Own = accelhost.data.Dataset:extend "Own"
function Own:len() return 1 end
function Own:get() return ("%.1f"):format(0.5) == "0.5" and tostring(accelhost.tensor(0.5)) == "tensor(0.5000)" end
for right in accelhost.data.DataLoader(Own(), {num_workers = 1}) do print(right) end
print(accelhost.tensor {0.5}, 0.25, tonumber "0.5", ("%g"):format(0.5), os.date("%B", 0))
]]

describe("A locale with a decimal comma", function()
  local home, missing

  setup(function()
    home = folder.make()
    local made = run.program({"localedef", "-i", "de_DE", "-f", "UTF-8", home .. "/de_DE.UTF-8"})
    missing = made.code ~= 0 and "needs localedef and the definition of de_DE (Debian: package locales)"
    local file = assert(io.open(home .. "/script.lua", "w"))
    file:write(SCRIPT)
    file:close()
  end)
  teardown(function() folder.remove(home) end)

  local function content(name)
    local file = assert(io.open(home .. "/" .. name, "rb"))
    local text = file:read "*a"
    file:close()
    return text
  end

  for _, setter in ipairs {"os.setlocale", "library"} do
    it("leaves checkpoints, logs, tensors and workers their points when set by " .. setter, function()
      if missing then return pending(missing) end
      local out = home .. "/" .. setter
      local result = run.host({home .. "/script.lua", out, setter}, {timeout = 40, env = {LOCPATH = home}})
      assert.equal("", result.stderr)
      run.succeeds(result)
      run.prints("tensor([true])\ntensor([0.5000])\t0.25\t0.5\t0.5\tJanuar\n", result)
      assert.matches('"_last_lr": %[0%.0625%]', content(setter .. "/state/scheduler.json"))
      assert.matches("0%.142857", content(setter .. "/run/metrics.csv"))
      assert.is_nil(content(setter .. "/run/metrics.jsonl"):find("0,142857", 1, true))
    end)
  end

  it("is refused for numbers alone, as a locale that is not installed is", function()
    if missing then return pending(missing) end
    local result = run.host({"-e", [[
      print(os.setlocale("de_DE.UTF-8", "numeric"), os.setlocale("xx_YY"), os.setlocale("POSIX", "numeric"))
      print(os.setlocale("LC_CTYPE=C.UTF-8;LC_NUMERIC=de_DE.UTF-8;LC_TIME=de_DE.UTF-8;LC_COLLATE=C;LC_MONETARY=C;"
        .. "LC_MESSAGES=C;LC_PAPER=C;LC_NAME=C;LC_ADDRESS=C;LC_TELEPHONE=C;LC_MEASUREMENT=C;LC_IDENTIFICATION=C")
        ~= nil, os.setlocale(nil, "time"), os.setlocale(nil, "numeric"), os.setlocale "C")]]},
      {timeout = 40, env = {LOCPATH = home}})
    run.prints("nil\tnil\tC\ntrue\tde_DE.UTF-8\tC\tC\n", result)
  end)
end)
