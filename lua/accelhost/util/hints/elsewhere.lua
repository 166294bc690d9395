--- Names of PyTorch, Accelerate and Python, and their names here.
local elsewhere = {}

--- Fields and methods that are requested of an object: name -> the text after the object's name instead.
elsewhere.fields = {
  numpy = ":tolist()", type = ":to(dtype)", copy = ":clone()", len = "#",
  append = ":append(...)", environ = ".getenv(name)", load = ":load_state_dict(accelhost.load(path))",
  __len__ = ":len()", backwards = ":backward()", ndimension = ":dim()",
}

--- The same where a sentence is needed.
elsewhere.sentences = {
  cpu = 'write tensor:to "cpu"',
  values = "a reduction over a dim returns two results: local values, indices = x:max(1)",
  indices = "a reduction over a dim returns two results: local values, indices = x:max(1)",
  save_state = "accelerator:save_state(folder) saves all that was prepared",
  load_state = "accelerator:load_state(folder) loads the state that accelerator:save_state saved",
  save_model = "accelerator:save_model(model, folder), or accelhost.save(model:state_dict(), file)",
  save = 'accelhost.save(object, "file.safetensors")',
  autocast = "accelhost.autocast(\"cpu\", function() ... end), or accelerator:autocast(function() ... end)",
  log = "accelerator:log(values, {step = n}) after accelerator:init_trackers; accelerator:print prints",
  broadcast = "accelhost.distributed.broadcast(x, 0), or accelhost.utils.broadcast(x)",
  init_process_group = "accelhost.distributed.init_process_group()",
}

--- Words that a script uses as globals.
elsewhere.globals = {
  len = "#x is the length of x", range = "for i = 0, n - 1 do ... end counts", enumerate = "accelhost.enumerate",
  str = "tostring(x)", int = "math.floor(x)", float = "tonumber(x)", list = "{...} is a list",
  dict = "{...} is a table",
  isinstance = "accelhost.isinstance(x, nn.Linear), type(x) == \"number\"", super = "Parent.method(self, ...)",
  max = "math.max", min = "math.min", abs = "math.abs", zip = "for i = 1, #list do", round = "(\"%.2f\"):format(x)",
  sum = "add in a loop, or accelhost.stack(list):sum() for tensors", f = "(\"loss %.3f\"):format(loss) fills a text",
  torch = "local accelhost = require \"accelhost\"",
  iter = "for inputs, labels in loader do ... break end reads one batch",
  nn = "local nn = accelhost.nn", F = "local F = accelhost.nn.functional", try = "pcall(function() ... end)",
  optim = "local optim = accelhost.optim", data = "local data = accelhost.data",
  accelhost = "local accelhost = require \"accelhost\"", tqdm = "accelhost.progress",
  self = "define the method with a colon, function Net:forward(x)", math = "Lua's own library",
  dist = "local dist = accelhost.distributed", sys = "arg has the script's arguments",
  time = "os.clock() and os.time()", random = "math.random, accelhost.rand", np = "accelhost.tensor, :tolist()",
  raise = "error(\"message\")", sorted = "table.sort(list)", any = "x:any()", all = "x:all()",
}

--- Modules of Python that a script requires, by the first part of their names.
elsewhere.modules = {
  torch = "Lua writes local accelhost = require \"accelhost\"", numpy = "accelhost.tensor, :tolist()",
  torchvision = "accelhost.data.transforms, accelhost.models", optuna = "accelhost.sweep", peft = "accelhost.peft",
  accelerate = "accelhost.Accelerator", transformers = "accelhost.Trainer, accelhost.models, accelhost.text",
}

--- Options.
elsewhere.options = {
  download = "`accelhost data mnist --dir DIR` downloads the files",
  pin_memory_device = "leave it out: pin_memory = true pins for CUDA devices",
  tokenizer = "its name is processing_class",
  num_classes = "the last layer has as many outputs", device_ids = "accelhost launch spreads a script over processes",
  map_location = 'leave it out: t:to "cpu" moves the result',
  weights_only = "leave it out: nothing in a file is run",
}

return elsewhere
