// What a user of the library writes. `consumer VERSION [MODEL]`: exits 0 if the installed library works.
#include <pop/pop.h>

#include <iostream>
#include <string>

int main(int argc, char** argv) {
  if (argc < 2 || pop::build_info().version != argv[1]) {
    std::cerr << "expected version " << (argc < 2 ? "?" : argv[1]) << ", found " << pop::build_info().version << "\n";
    return 1;
  }
  try {
    pop::Engine engine({.model = "/nonexistent/model.gguf"});
    std::cerr << "a model that is not there was loaded\n";
    return 1;
  } catch (const pop::Exception& error) {
    if (std::string(error.what()).find("/nonexistent/model.gguf") == std::string::npos) {
      std::cerr << "the error does not name the file: " << error.what() << "\n";
      return 1;
    }
  }
  if (argc == 3) {
    pop::Engine engine({.model = argv[2], .threads = 1});
    const auto answer = engine.session()->generate(engine.prompt("The capital of France is"), {.max_tokens = 4});
    std::cout << answer.text << "\n";
    return answer.generated_tokens == 4 ? 0 : 1;
  }
  return 0;
}
