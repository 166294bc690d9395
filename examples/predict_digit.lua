-- Classifies one image with a trained model: reads a PNG or JPEG, and weights that training has saved.
--
--   accelhost examples/mnist_trainer.lua                         -- saves runs/mnist_trainer/model.safetensors
--   accelhost examples/predict_digit.lua --image seven.png
--
-- Without an image it uses the first one of the test set; without weights it runs mnist_trainer.lua first.
local accelhost = require "accelhost"
local nn, F, data = accelhost.nn, accelhost.nn.functional, accelhost.data

local args = accelhost.parse_args {
  description = "Classifies an image of a digit.",
  {"image", nil, "image of one digit, light on dark (default: a test image)", type = "string", metavar = "FILE"},
  {"weights", nil, "file of the weights (default: those of mnist_trainer.lua)", type = "string", metavar = "FILE"},
  {"data", nil, "folder with the IDX files (default: $ACCELHOST_DATA, else data/)", type = "string", metavar = "DIR"},
  {"smoke", false, "the same in a few seconds, with a model that has seen little"},
}

-- The same layers, by the same names, as in mnist_trainer.lua.
local BasicNet = nn.Module:extend "BasicNet"

function BasicNet:init()
  self.conv1 = nn.Conv2d(1, 32, 3, 1)
  self.conv2 = nn.Conv2d(32, 64, 3, 1)
  self.dropout1 = nn.Dropout(0.25)
  self.dropout2 = nn.Dropout(0.5)
  self.fc1 = nn.Linear(9216, 128)
  self.fc2 = nn.Linear(128, 10)
end

function BasicNet:forward(x)
  x = F.relu(self.conv2(F.relu(self.conv1(x))))
  x = self.dropout1(F.max_pool2d(x, 2)):flatten(1)
  return F.log_softmax(self.fc2(self.dropout2(F.relu(self.fc1(x)))), 1)
end

local folder = args.smoke and "runs/mnist_trainer_smoke" or "runs/mnist_trainer"
local weights = args.weights or folder .. "/model.safetensors"
local file = io.open(weights)
if file then
  file:close()
elseif not args.weights then
  io.stderr:write(("There are no weights in '%s' yet: examples/mnist_trainer.lua trains them.\n"):format(weights))
  local own = arg
  _G.arg = {[0] = arg[0]:gsub("predict_digit%.lua$", "mnist_trainer.lua"), "--output_dir", folder, "--quiet",
    unpack(args.smoke and {"--smoke", "--max_steps", "5", "--save_strategy", "no"} or {})}
  dofile(_G.arg[0])
  _G.arg = own
end

-- uint8 [1, rows, columns] of any size becomes the model's input: [1, 1, 28, 28] from 0 to 1.
local function prepare(image)
  return F.interpolate(image:to("float32"):div(255):unsqueeze(0), {size = {28, 28}, mode = "bilinear"})
end

local model = BasicNet()
model:load_state_dict(accelhost.load(weights))
model:eval() -- no dropout

local x
if args.image then
  x = prepare(data.read_image(args.image, {mode = "gray"}))
else
  local _, test_set = data.mnist(args.data, {announce = false})
  x = test_set:get(0):unsqueeze(0)
end
local log_probabilities = accelhost.no_grad(function() return model(x) end)
local digit = log_probabilities:argmax(1):item()
if accelhost.PartialState().is_main_process then
  print(("Probability: %.2f (digit %d)"):format(log_probabilities:exp():max():item(), digit))
end
