package contender;

import java.util.List;
import java.util.Map;

import org.yaml.snakeyaml.LoaderOptions;
import org.yaml.snakeyaml.Yaml;
import org.yaml.snakeyaml.constructor.SafeConstructor;

/** What is to be done, as the harness describes it. Where {@code cycles} is not 0, it ends after so many. */
record Job(
        String lock,
        String mode,
        List<String> nodes,
        int tasks,
        String name,
        int distinct,
        long holdNanos,
        long pauseNanos,
        long nanos,
        int cycles,
        long ttlMillis,
        boolean samples) {

    /** The job is JSON, which is YAML too. */
    static Job parse(String text) {
        Map<String, Object> job = new Yaml(new SafeConstructor(new LoaderOptions())).load(text);
        return new Job(
                (String) job.get("lock"),
                (String) job.get("mode"),
                ((List<?>) job.get("nodes")).stream().map(String.class::cast).toList(),
                number(job, "tasks").intValue(),
                (String) job.get("name"),
                number(job, "distinct").intValue(),
                number(job, "hold_us").longValue() * 1000,
                number(job, "pause_us").longValue() * 1000,
                (long) (number(job, "seconds").doubleValue() * 1e9),
                job.containsKey("cycles") ? number(job, "cycles").intValue() : 0,
                number(job, "ttl_ms").longValue(),
                Boolean.TRUE.equals(job.get("samples")));
    }

    private static Number number(Map<String, Object> job, String field) {
        if (job.get(field) instanceof Number number) {
            return number;
        }
        throw new IllegalArgumentException("the job has no number " + field);
    }

    String nameOf(int task, int cycle) {
        return distinct > 0 ? name + ":" + task + ":" + cycle % distinct : name;
    }
}
