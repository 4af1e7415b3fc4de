import jakarta.servlet.http.HttpServlet;
import jakarta.servlet.http.HttpServletRequest;
import jakarta.servlet.http.HttpServletResponse;
import java.io.File;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.util.Set;
import java.util.logging.Level;
import java.util.logging.Logger;
import org.apache.catalina.Context;
import org.apache.catalina.connector.Connector;
import org.apache.catalina.startup.Tomcat;

/**
 * A servlet with a page for each name it knows and 404 for others, and an application /files with static files;
 * prints its port; ends with its input.
 */
public class Site {
    static class Pages extends HttpServlet {
        private final Set<String> names;

        Pages(Set<String> names) {
            this.names = names;
        }

        @Override
        protected void doGet(HttpServletRequest request, HttpServletResponse response) throws IOException {
            String name = request.getServletPath() + (request.getPathInfo() == null ? "" : request.getPathInfo());
            if (!names.contains(name)) {
                response.sendError(404);
                return;
            }
            String id = request.getParameter("id");
            byte[] body = ("The page " + name + (id == null ? "" : " number " + id)).getBytes(StandardCharsets.UTF_8);
            response.setContentType("text/plain;charset=utf-8");
            response.setContentLength(body.length);
            response.getOutputStream().write(body);
        }
    }

    public static void main(String[] arguments) throws Exception {
        Logger.getLogger("").setLevel(Level.SEVERE);
        String base = new File(arguments[0]).getAbsolutePath();
        Tomcat tomcat = new Tomcat();
        tomcat.setBaseDir(base);
        Connector connector = new Connector("HTTP/1.1");
        connector.setProperty("address", "127.0.0.1");
        connector.setPort(0);
        tomcat.getService().addConnector(connector);
        Context context = tomcat.addContext("", base);
        Tomcat.addServlet(context, "pages", new Pages(Set.of(arguments[1].split(" "))));
        context.addServletMappingDecoded("/*", "pages");
        Context files = tomcat.addContext("/files", new File(base, "files").getPath());
        Tomcat.addServlet(files, "files", "org.apache.catalina.servlets.DefaultServlet");
        files.addServletMappingDecoded("/", "files");
        files.addWelcomeFile("index.html");
        files.addMimeMapping("html", "text/html");
        tomcat.start();
        System.out.println(connector.getLocalPort());
        while (System.in.read() >= 0) {}
        System.exit(0);
    }
}
