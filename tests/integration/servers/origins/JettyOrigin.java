import java.io.IOException;
import java.nio.charset.StandardCharsets;
import javax.servlet.http.HttpServlet;
import javax.servlet.http.HttpServletRequest;
import javax.servlet.http.HttpServletResponse;
import org.eclipse.jetty.server.Server;
import org.eclipse.jetty.server.handler.ContextHandlerCollection;
import org.eclipse.jetty.servlet.ServletContextHandler;
import org.eclipse.jetty.servlet.ServletHolder;

/** Two applications, whose servlets tell what Jetty makes of a target. Usage: JettyOrigin PORT */
public class JettyOrigin {
    static class Teller extends HttpServlet {
        private final String name;

        Teller(String name) {
            this.name = name;
        }

        @Override
        protected void doGet(HttpServletRequest request, HttpServletResponse response) throws IOException {
            StringBuilder parameters = new StringBuilder();
            request.getParameterMap().forEach((name, values) -> {
                for (String value : values) {
                    parameters.append(name).append('=').append(value).append('\n');
                }
            });
            String told = String.join(
                    "\n",
                    name,
                    hex(request.getContextPath()),
                    hex(request.getServletPath()),
                    hex(request.getPathInfo()),
                    hex(request.getRequestedSessionId()),
                    hex(parameters.toString()));
            byte[] body = told.getBytes(StandardCharsets.US_ASCII);
            response.setContentLength(body.length);
            response.getOutputStream().write(body);
        }

        private static String hex(String text) {
            if (text == null) {
                return "-";
            }
            StringBuilder told = new StringBuilder();
            for (byte octet : text.getBytes(StandardCharsets.UTF_8)) {
                told.append(String.format("%02x", octet));
            }
            return told.toString();
        }
    }

    static ServletContextHandler application(String path) {
        ServletContextHandler context = new ServletContextHandler(ServletContextHandler.SESSIONS);
        context.setContextPath(path);
        String[][] mappings = {
            {"default", "/"}, {"admin", "/admin/*"}, {"exact", "/foo/bar"}, {"foo", "/foo/*"}, {"do", "*.do"}
        };
        for (String[] mapping : mappings) {
            context.addServlet(new ServletHolder(mapping[0], new Teller(mapping[0])), mapping[1]);
        }
        return context;
    }

    public static void main(String[] arguments) throws Exception {
        Server server = new Server(new java.net.InetSocketAddress("127.0.0.1", Integer.parseInt(arguments[0])));
        server.setHandler(new ContextHandlerCollection(application("/"), application("/shop")));
        server.start();
        server.join();
    }
}
