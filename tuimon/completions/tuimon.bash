# Completion of tuimon for bash: written by `make completions`, from the parsers of its commands.
_tuimon() {
  local word="${COMP_WORDS[COMP_CWORD]}" before="${COMP_WORDS[COMP_CWORD-1]}" options="" words="" each
  COMPREPLY=()
  if ((COMP_CWORD == 1)); then
    COMPREPLY=($(compgen -W "demo run attach view report explain diff export trace ps doctor completions --help --version" -- "$word"))
    return
  fi
  if [[ ${COMP_WORDS[1]} == run ]]; then  # what follows the program is its own
    for each in "${COMP_WORDS[@]:2:COMP_CWORD-2}"; do
      [[ $each == -- || $each == -m || $each == *.py ]] && return
    done
  fi
  case "${COMP_WORDS[1]} $before" in
    "run --interval" | "run --rate" | "run --max-cpu" | "run --log" | "run --run" | "run --on-hang" | "run --on-finding" | "run --prometheus") return ;;
    "attach --interval" | "attach --rate" | "attach --max-cpu" | "attach --log" | "attach --run" | "attach --on-hang" | "attach --on-finding" | "attach --prometheus" | "attach --duration") return ;;
    "view --speed" | "view --run" | "view --prometheus") return ;;
    "report --format")
      COMPREPLY=($(compgen -W "text json html" -- "$word"))
      return ;;
    "report --run" | "report -o" | "report --output" | "report --fail-on") return ;;
    "explain --format")
      COMPREPLY=($(compgen -W "text json" -- "$word"))
      return ;;
    "diff --format")
      COMPREPLY=($(compgen -W "text json" -- "$word"))
      return ;;
    "diff -o" | "diff --output" | "diff --fail-if-slower") return ;;
    "export --to")
      COMPREPLY=($(compgen -W "perfetto speedscope collapsed" -- "$word"))
      return ;;
    "export --run" | "export -o" | "export --output" | "export --phase" | "export --role" | "export --from" | "export --until") return ;;
    "trace --steps" | "trace -o" | "trace --output" | "trace --max-pause") return ;;
    "ps --format")
      COMPREPLY=($(compgen -W "text json" -- "$word"))
      return ;;
    "doctor --format")
      COMPREPLY=($(compgen -W "text json" -- "$word"))
      return ;;
  esac
  case "${COMP_WORDS[1]}" in
    demo) options="-h --help --list" words="starved sync launch-bound late-rank float32 healthy" ;;
    run) options="-h --help --headless --interval --no-markers --no-gpu --memory --no-stacks --no-native --rate --max-cpu --log --run --force --on-hang --on-finding --prometheus" ;;
    attach) options="-h --help --headless --interval --no-markers --no-gpu --memory --no-stacks --no-native --rate --max-cpu --log --run --force --on-hang --on-finding --prometheus --duration --inject --keep-hooks" ;;
    view) options="-h --help --speed --headless --run --prometheus" ;;
    report) options="-h --help --run --format --brief -o --output --force --fail-on" ;;
    explain) options="-h --help --all --full --format" ;;
    diff) options="-h --help --format -o --output --force --fail-if-slower --anyway" ;;
    export) options="-h --help --run --to -o --output --force --phase --role --from --until" ;;
    trace) options="-h --help --steps -o --output --force --max-pause" ;;
    ps) options="-h --help --format --all" ;;
    doctor) options="-h --help --format" ;;
    completions) options="-h --help" words="bash zsh fish" ;;
  esac
  [[ $word == -* ]] && words="$options"
  COMPREPLY=($(compgen -W "$words" -- "$word"))
}
complete -o bashdefault -o default -F _tuimon tuimon
